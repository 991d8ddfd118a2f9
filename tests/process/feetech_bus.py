"""A bus of Feetech STS3215 servos behind a serial port: the wire protocol, on a pseudo terminal.

Each servo is its table of registers, and a position that goes to the goal at a bounded speed while its torque
is on.
"""

import json
import os
import select
import time
import tty
from pathlib import Path
from threading import Thread

MODEL, FIRMWARE = 3, 0
MIN_LIMIT, MAX_LIMIT, OFFSET, TORQUE, GOAL, PRESENT = 9, 11, 31, 40, 42, 56
STS3215 = 777
STEPS_PER_S = 3000.0
SO101 = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
RANGE = (1024, 3072)
"""A quarter turn to either side of the middle."""


class Servo:
    def __init__(self) -> None:
        self.registers = bytearray(256)
        self.registers[FIRMWARE : FIRMWARE + 2] = bytes((3, 10))
        self.put(MODEL, STS3215)
        self.put(MIN_LIMIT, RANGE[0])
        self.put(MAX_LIMIT, RANGE[1])
        self.position, self.moved_s = 2048.0, time.monotonic()
        self.put(GOAL, 2048)

    def put(self, address: int, value: int) -> None:
        self.registers[address : address + 2] = value.to_bytes(2, "little")

    def word(self, address: int) -> int:
        return int.from_bytes(self.registers[address : address + 2], "little")

    def move(self) -> None:
        now_s = time.monotonic()
        way, most = self.word(GOAL) - self.position, STEPS_PER_S * (now_s - self.moved_s)
        if self.registers[TORQUE]:
            self.position += min(max(way, -most), most)
        self.moved_s = now_s
        self.put(PRESENT, round(self.position))


class FeetechBus:
    """Answers until it is closed; `port` is what LeRobot opens."""

    def __init__(self, num_servos: int = 6) -> None:
        self.servos = {i + 1: Servo() for i in range(num_servos)}
        self.is_silent = False
        self.lost_pings = 0
        self.lost_reads = 0
        """So many are not answered."""
        self._ours, theirs = os.openpty()
        tty.setraw(self._ours)
        tty.setraw(theirs)
        self.port, self._theirs = os.ttyname(theirs), theirs
        self._is_open, self._buffer = True, b""
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        self._thread.join()
        os.close(self._ours)
        os.close(self._theirs)

    def calibrate(self, folder: Path, name: str) -> None:
        """The file that lerobot-calibrate would have written."""
        each = {"drive_mode": 0, "homing_offset": 0, "range_min": RANGE[0], "range_max": RANGE[1]}
        motors = {motor: {"id": i + 1, **each} for i, motor in enumerate(SO101)}
        (folder / f"{name}.json").write_text(json.dumps(motors))

    def _run(self) -> None:
        while self._is_open:
            if select.select([self._ours], [], [], 0.02)[0]:
                self._buffer += os.read(self._ours, 4096)
                self._answer()

    def _answer(self) -> None:
        while len(self._buffer) >= 4:
            if self._buffer[:2] != b"\xff\xff":
                self._buffer = self._buffer[1:]
                continue
            length = self._buffer[3]
            if len(self._buffer) < 4 + length:
                return
            packet, self._buffer = self._buffer[: 4 + length], self._buffer[4 + length :]
            if (sum(packet[2:]) & 0xFF) == 0xFF:
                self._obey(packet[2], packet[4], packet[5:-1])

    def _obey(self, number: int, instruction: int, words: bytes) -> None:
        match instruction:
            case 0x01 if self.lost_pings:
                self.lost_pings -= 1
            case 0x01:  # ping
                self._say(number, b"")
            case 0x02:  # read
                self._say(number, self._read(number, words[0], words[1]))
            case 0x03:  # write
                self._write(number, words[0], words[1:])
                self._say(number, b"")
            case 0x82 if self.lost_reads:
                self.lost_reads -= 1
            case 0x82:  # of several at once: read
                for each in words[2:]:
                    self._say(each, self._read(each, words[0], words[1]))
            case 0x83:  # write
                address, size = words[0], words[1]
                for at in range(2, len(words), size + 1):
                    self._write(words[at], address, words[at + 1 : at + 1 + size])

    def _read(self, number: int, address: int, size: int) -> bytes:
        if number not in self.servos:
            return b""
        self.servos[number].move()
        return bytes(self.servos[number].registers[address : address + size])

    def _write(self, number: int, address: int, values: bytes) -> None:
        if number in self.servos:
            self.servos[number].move()
            self.servos[number].registers[address : address + len(values)] = values

    def _say(self, number: int, values: bytes) -> None:
        if number not in self.servos or self.is_silent:
            return
        body = bytes((number, len(values) + 2, 0)) + values
        os.write(self._ours, b"\xff\xff" + body + bytes((~sum(body) & 0xFF,)))
