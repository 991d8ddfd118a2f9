"""The protocol between robot and inference server: messages, their bytes, two sessions without I/O.

conversation    messages          the robot's side   client_session   greet, heartbeat, detect loss
                payloads          (events: what      in_flight        its requests: sent or waiting
packets and     codec             it reports)        reassembly       its answers: rows in order, each once
frames          arrays                               heartbeats       its timeout
                fields            the server's side  server_session   all clients of one policy
                frames                               admission        what it admits
                                                     request_queue    waiting and running requests
                                                     kept_pictures    images that need not be sent again

Time is an argument; nothing here touches a socket, a thread or a clock.
"""
