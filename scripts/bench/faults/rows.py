"""All rows of the table of faults: `ROWS`."""

from scripts.bench.faults import answers, devices, disk, machine, network, operator, sensing, start
from scripts.bench.faults.table import Fault

FAMILIES = (network, answers, sensing, machine, start, disk, devices, operator)
ROWS: tuple[Fault, ...] = tuple(
    sorted((row for family in FAMILIES for row in family.ROWS), key=lambda row: row.number)
)
