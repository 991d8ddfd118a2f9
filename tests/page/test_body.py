"""A robot's shape from its own model."""

import math

import numpy as np
import pytest

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.body import joints_by_column
from robot_runtime.page.load_body import load_body

LINK = """<link name="{0}"><visual><origin xyz="0 0 0.25"/>
<geometry><box size="0.1 0.1 0.5"/></geometry></visual></link>"""
URDF = f"""<robot name="r">{LINK.format("base")}{LINK.format("upper")}{LINK.format("lower")}
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.5"/>
<axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.5"/>
<axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint></robot>"""
MJCF = """<mujoco><worldbody><geom type="plane" size="2 2 0.1"/>
<body name="upper" pos="0 0 0.5"><joint name="shoulder" type="hinge" axis="0 1 0"/>
<geom type="capsule" size="0.05 0.2"/>
<body name="lower" pos="0 0 0.5"><joint name="elbow" type="hinge" axis="0 1 0"/>
<geom type="sphere" size="0.05"/></body></body>
<body name="ball" pos="1 0 0.5"><freejoint/><geom type="sphere" size="0.05"/></body>
</worldbody></mujoco>"""
COLUMNS = ("arm.joint_1", "arm.joint_2", "arm.joint_1.velocity", "arm.joint_2.velocity", "base.vx")


@pytest.fixture(params=[("r.urdf", URDF), ("r.xml", MJCF)], ids=["urdf", "mjcf"])
def body(request, tmp_path):
    name, text = request.param
    (tmp_path / name).write_text(text)
    return load_body(tmp_path / name, COLUMNS)


def test_links_are_where_the_joints_put_them(body):
    hand = body.hand_of("arm")
    assert body.link_at({}, hand).translation == pytest.approx([0.0, 0.0, 1.0])
    bent = {"arm.joint_1": math.pi / 2, "arm.joint_2": 0.3}
    assert body.link_at(bent, hand).translation == pytest.approx([0.5, 0.0, 0.5])
    assert body.placed(bent)[hand].p == pytest.approx([0.5, 0.0, 0.5])


def test_a_base_that_is_measured_carries_the_robot(body):
    driven = {"base.x": 2.0, "base.y": 1.0, "base.yaw": math.pi / 2, "arm.joint_1": math.pi / 2}
    assert body.link_at(driven, body.hand_of("arm")).translation == pytest.approx([2.0, 1.5, 0.5])


def test_every_shape_is_a_mesh_of_a_link(body):
    links = set(body.placed({}))
    for shape in body.shapes:
        assert shape.link in links
        assert shape.vertices.shape[1:] == (3,)
        assert shape.faces.max() < len(shape.vertices)
        assert np.isfinite(shape.vertices).all()


def test_what_falls_about_in_a_scene_is_not_shown_as_nobody_knows_where_it_is(tmp_path):
    (tmp_path / "r.xml").write_text(MJCF)
    assert "ball" not in {shape.link for shape in load_body(tmp_path / "r.xml", COLUMNS).shapes}


def test_a_part_that_the_model_has_not_has_no_hand(body):
    assert body.hand_of("left_arm") is None


@pytest.mark.parametrize(
    ("columns", "joints", "found"),
    [
        (["arm.shoulder_pan"], ["lift", "shoulder_pan"], {"arm.shoulder_pan": "shoulder_pan"}),
        (["left_arm.joint_1", "right_arm.joint_1"], ["right_j1", "left_j1"],
         {"left_arm.joint_1": "left_j1", "right_arm.joint_1": "right_j1"}),
        (["arm.joint_1", "gripper.width"], ["fr3_joint1"], {"arm.joint_1": "fr3_joint1"}),
        (["arm.joint_1", "arm.joint_2"], ["only_one"], {}),
        (["lift.joint_1", "arm.joint_1"], ["arm_joint_1", "column"],
         {"arm.joint_1": "arm_joint_1", "lift.joint_1": "column"}),
    ],
)  # fmt: skip
def test_joints_are_found_by_name_or_in_their_order(columns, joints, found):
    assert joints_by_column(columns, joints) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [("r.urdf", "<robot"), ("r.urdf", ""), ("r.xml", "<mujoco><nonsense/></mujoco>"), ("r.step", "x")],
)
def test_what_is_no_model_is_refused_in_words(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidValueError, match=r"urdf|URDF|MuJoCo"):
        load_body(tmp_path / name, COLUMNS)


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match="there is no"):
        load_body(tmp_path / "gone.urdf", COLUMNS)
