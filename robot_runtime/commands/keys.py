"""`robot-runtime keys`: who may use a server."""

from dataclasses import dataclass
from pathlib import Path

from robot_runtime.cli.options import OutputFolder, Some
from robot_runtime.keys import make_keys


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Make keys, so that a server can be used from other machines: one folder for it, one for each robot.

    Copy each folder to its machine and nowhere else. On the server's: `serve --keys keys/server`. On the
    robot's: `run --keys keys/NAME`.
    """

    robots: Some[str]
    """Names of the robots; run the command again to add more."""
    folder: OutputFolder = Path("keys")
    """Where the folders are made."""

    def main(self) -> int:
        """Make them and say where they belong; returns the exit code."""
        for made in make_keys(self.folder, self.robots):
            whose = "the server" if made.name == "server" else f"robot {made.name}"
            print(f"{made}  for {whose}, nobody else")
        return 0
