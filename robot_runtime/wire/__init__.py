"""The protocol between robot and inference server: messages, their bytes, two sessions without I/O.

messages   what is said                            client_session  the robot's side: greet, beat, notice loss
codec      packets <-> frames                      credit          its requests: in flight, or waiting
forms      what a message looks like in the header assembly        its answers: rows in order, each once
fields     types of its fields                     server_session  all clients of one policy
arrays     arrays in the header or in frames       admission       what a server lets in
frames     their limits, and ProtocolError         events          what the robot's side reports
order      which requests follow which             jobs            what waits on the server, whose turn it is
                                                   sent_answers    what a robot was answered last

Time is an argument; nothing here touches a socket, a thread or a clock.
"""
