"""All rows of the table of faults: `ROWS`."""

from scripts.bench.faults import answers, devices, machine, network, operators, recordings, sensing
from scripts.bench.faults.table import Fault

ROWS: tuple[Fault, ...] = (
    network.kill_servers, network.slow_servers, network.lose_networks,
    answers.stray_replies, answers.no_answers, answers.wild_answers,
    sensing.break_cameras, machine.set_clocks, machine.take_cores,
    devices.lost_drivers, devices.reflexes, sensing.wrong_odometry,
    operators.releases, recordings.full_disks, recordings.killed_recordings,
    devices.left_alone, operators.not_alive, operators.two_controllers, operators.unfit_policies,
)  # fmt: skip
"""In the order of their numbers."""
