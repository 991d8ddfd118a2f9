"""Other projects' clients at our server, and our clients at theirs: foreign protocols.

process          each gateway as a process of its own, with bounded memory
openpi           stock `openpi-client` over WebSocket
lerobot          the stock robot client of `lerobot.async_inference` over gRPC; lerobot_messages and
                 lerobot_names
groot            GR00T's clients over ZeroMQ
policy_session   their clients' requests, passed to our server over few connections
key_map          which entry of a foreign observation is which part of ours (entries, part_entries), in which
                 units (units); values from untrusted messages (values)
arrays           msgpack with arrays in their forms; plain_arrays: those forms; pickle_format: pickles as data
"""
