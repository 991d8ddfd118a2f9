"""Other projects' clients at our server, and the other way round: protocols that are not ours.

process          each gateway as a process of its own, with bounded memory
openpi           stock `openpi-client` over WebSocket
lerobot          the stock robot client of `lerobot.async_inference` over gRPC; lerobot_messages and
                 lerobot_names
groot            GR00T's clients over ZeroMQ; groot_names
policy_session   their clients' questions, put to our server by few connections
key_map          which entry of a foreign observation is which part of ours (entries, part_entries), in which
                 units (units); values that strangers send (values)
arrays           msgpack with arrays in their forms; plain_arrays: those forms; pickle_format: pickles as data
"""
