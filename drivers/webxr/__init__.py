"""A phone or a headset as a teleoperator: a page over https sends poses (WebXR) or sticks.

phone, headset ── wss ──► server, in its own process ── shared memory ──► WebXrTeleoperator.read
"""

from drivers.webxr.teleoperator import WebXrTeleoperator

__all__ = ["WebXrTeleoperator"]
