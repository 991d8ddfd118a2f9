"""The pure core: values in, values out, time is an argument. No clock, thread, socket, log or file."""
