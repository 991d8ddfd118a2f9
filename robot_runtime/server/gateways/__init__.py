"""Other projects' clients at our server, and the other way round: protocols that are not ours.

process   each gateway as a process of its own, with bounded memory
openpi    stock `openpi-client` over WebSocket
lerobot   the stock robot client of `lerobot.async_inference` over gRPC; its messages in lerobot_messages
groot     GR00T's clients over ZeroMQ
asking    their clients' questions, put to our server by few connections
names     which entry of a foreign observation is which part of ours; in which units; values of strangers
arrays    msgpack with arrays in their forms; plain_arrays: those forms; pickle_format: pickles as data
"""
