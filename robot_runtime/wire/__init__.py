"""The protocol between robot and inference server: messages, their bytes, two sessions without I/O.

what is said    messages          the robot's side   client_session   greet, beat, notice loss
                payloads          (events: what      in_flight        its requests: sent, or waiting
packets and     codec             it reports)        reassembly       its answers: rows in order, each once
frames          arrays                               heartbeats       how patient it is
                fields            the server's side  server_session   all clients of one policy
                frames                               admission        what it lets in
                                                     request_queue    what waits and what runs
                                                     kept_pictures    pictures that need not be sent again

Time is an argument; nothing here touches a socket, a thread or a clock.
"""
