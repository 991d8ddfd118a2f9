"""`robot-runtime keys`: makes keys for a server and its robots."""

from dataclasses import dataclass
from pathlib import Path

from robot_runtime.cli.options import OutputFolder, Some
from robot_runtime.keys import make_keys


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Make keys for a server and for each robot, so that robots can use it from other machines.

    Copy each folder to its machine and nowhere else. Start the server with `serve --keys keys/server`, and a
    robot with `run --keys keys/NAME`.
    """

    robots: Some[str]
    """Names of the robots; run the command again to add more."""
    folder: OutputFolder = Path("keys")
    """Where the folders are made."""

    def main(self) -> int:
        """Make the keys and print where they belong; return the exit code."""
        for made in make_keys(self.folder, self.robots):
            whose = "the server" if made.name == "server" else f"robot {made.name}"
            print(f"{made}  for {whose} only")
        return 0
