"""Frames over ZeroMQ: DEALER on the robot (`robot/client.py`), ROUTER on the server (`server.py`).

libzmq carries everything: its thread reads, assembles and writes messages, reconnects, asks idle peers
for a sign of life and, with keys, encrypts. What it does not bound, such as the bytes of messages that are
never finished, `ConnectionLimiter` does. A transport belongs to one thread. Frames that are
sent are not copied, so their memory must stay unchanged until they are sent; received ones are views of
libzmq's memory.
"""
