"""Other projects' clients at our server, and the other way round: protocols that are not ours.

names     which entry of a foreign observation is which part of ours
openpi    stock `openpi-client` over WebSocket
lerobot   the stock robot client of `lerobot.async_inference` over gRPC
groot     GR00T's clients over ZeroMQ
asking    their clients as guests of our server, one question at a time
arrays    msgpack with arrays in their forms
"""
