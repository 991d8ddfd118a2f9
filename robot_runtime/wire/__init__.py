"""The protocol between robot and inference server: messages, their bytes, two sessions without I/O.

messages   what is said                            client_session  the robot's side: greet, beat, notice loss
packing    checked reading and writing of fields   credit          its requests: one in flight, newest waits
codec      packets <-> frames, with request_codec  assembly        its answers: rows in order, each once
events     what the robot's side reports           server_session  all clients of one policy
                                                   admission       what a server lets in

Time is an argument; nothing here touches a socket, a thread or a clock.
"""
