"""The process that reads a teleoperator of LeRobot."""

from drivers.lerobot.robot_process import run_device


def main(text: str, descriptor: str) -> None:
    """config: a `DeviceConfig` as JSON; descriptor: of the memory shared with the parent."""
    run_device(text, int(descriptor), is_read_only=True)
