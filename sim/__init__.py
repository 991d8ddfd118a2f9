"""MuJoCo in place of hardware: the same driver protocols, in real time or under a virtual clock."""
