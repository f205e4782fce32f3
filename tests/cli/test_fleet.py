"""Job files for many machines, run as printed: simulated checks on invented nodes, merged into one."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from factories import containerfile
from factories.command_line import ROOTS, command, environment
from stallprobes.matrix import check_file
from stallprobes.matrix.matrix import Matrix
from stallprobes.native.sources import LIBRARIES
from stallprobes.wording import check_wording
from stallscope.cli import fleet

if TYPE_CHECKING:
    from factories.command_line import Command, Done

ROOT = Path(__file__).parents[2]
# The shortest check there is: one victim beside one aggressor.
OPTIONS = "--sim --quick --victims launch --aggressors spin"
NODES = ("node-1", "node-2")

# What a Job must have to be one at all, and what this one must have to come to its node and to its GPU.
JOB: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "batch/v1"},
        "kind": {"const": "Job"},
        "metadata": {"required": ["generateName", "labels"]},
        "spec": {
            "required": ["backoffLimit", "template"],
            "properties": {
                "template": {
                    "required": ["spec"],
                    "properties": {
                        "spec": {
                            "required": ["restartPolicy", "affinity", "containers", "volumes"],
                            "properties": {
                                "restartPolicy": {"const": "Never"},
                                "containers": {"minItems": 1, "maxItems": 1, "items": {"$ref": "#/$defs/container"}},
                            },
                        }
                    },
                }
            },
        },
    },
    "$defs": {
        "container": {
            "required": ["name", "image", "workingDir", "command", "args", "env", "resources", "volumeMounts"],
            "properties": {
                "command": {"items": {"type": "string"}},
                "args": {"items": {"type": "string"}},
                # Kubernetes takes no number or truth value here.
                "env": {
                    "items": {
                        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                        "oneOf": [{"required": ["name", "value"]}, {"required": ["name", "valueFrom"]}],
                    }
                },
                "resources": {
                    "required": ["limits"],
                    "properties": {"limits": {"const": {"nvidia.com/gpu": "1"}}},
                },
            },
        }
    },
}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for the PATH with the command under test, which fails on the node ``broken``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool(
        folder,
        "stallscope",
        f'[ "${{SLURMD_NODENAME:-}}" != broken ] || exit 3\nexec {" ".join(command(None))} "$@"',
    )
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def ran(arguments: list[str], tools: Path, folder: Path, **variables: str) -> Done:
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment(PATH=f"{tools}{os.pathsep}{os.environ['PATH']}", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )


def printed(stallscope_command: Command, kind: str, path: Path) -> None:
    done = stallscope_command("fleet", kind)
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(done.stdout, encoding="utf-8")


def merged(folder: Path, hosts: tuple[str, ...] = NODES) -> Matrix:
    """The matrix of all nodes, which has each of ``hosts``."""
    matrix = check_file.load(folder / "fleet.json.gz")
    assert tuple(matrix.hosts) == hosts
    assert all(of["hostname"] == host for host, of in matrix.hosts.items())
    assert [repeat.host for repeat in matrix.cells["launch", "spin"].repeats] == list(hosts)
    assert "<title>" in (folder / "fleet.html").read_text(encoding="utf-8")
    return matrix


@pytest.mark.parametrize("kind", fleet.FILES)
def test_a_job_file_is_printed_unchanged_and_explains_its_use(stallscope_command: Command, kind: str) -> None:
    done = stallscope_command("fleet", kind, env={"COLUMNS": "40", "LC_ALL": "C"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == fleet.text(kind)
    assert done.stdout.isascii()
    assert "stallscope's check on every" in done.stdout[:100]
    # JSON has no comments, and expressions in it no line breaks.
    if not fleet.FILES[kind].endswith(".json"):
        assert max(map(len, done.stdout.splitlines())) <= 120
        assert done.stdout.startswith("#")


def test_an_unknown_kind_is_a_usage_error(stallscope_command: Command) -> None:
    done = stallscope_command("fleet", "nomad")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_data_files_are_installed_with_the_packages() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    data = told["tool"]["setuptools"]["package-data"]
    installed = []
    for package, root in zip(("stallscope", "stallprobes"), map(Path, ROOTS), strict=True):
        top = root / package
        for path in top.rglob("*"):
            inner = path.relative_to(top).as_posix()
            # Tools leave hidden folders where they were called.
            hidden = any(part.startswith(".") for part in path.relative_to(top).parts)
            # The build adds the native libraries to a wheel itself.
            if path.is_file() and not hidden and path.suffix not in (".py", ".pyc") and path.parent != LIBRARIES:
                assert any(fnmatch.fnmatch(inner, pattern.removeprefix("**/")) for pattern in data[package]), inner
                installed.append(path.name)
    assert {"h200.toml", "py.typed", "page.css", "page.js"} <= set(installed)


def test_the_slurm_script_checks_each_node_and_merges_them(
    stallscope_command: Command, tools: Path, tmp_path: Path
) -> None:
    printed(stallscope_command, "slurm", tmp_path / "stallscope.sbatch")
    done = slurm(tools, tmp_path, *NODES)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert merged(tmp_path / "stallscope-7").quick
    assert sorted(path.name for path in (tmp_path / "stallscope-7").iterdir()) == [
        "check-node-1.json.gz", "check-node-2.json.gz", "fleet.html", "fleet.json.gz",
    ]  # fmt: skip


def test_a_slurm_node_that_fails_is_missing_and_fails_the_job(
    stallscope_command: Command, tools: Path, tmp_path: Path
) -> None:
    printed(stallscope_command, "slurm", tmp_path / "stallscope.sbatch")
    done = slurm(tools, tmp_path, "broken", "node-2", STALLSCOPE_RESULTS=str(tmp_path / "my results"))
    assert done.returncode == 3
    merged(tmp_path / "my results", ("node-2",))


def slurm(tools: Path, folder: Path, *nodes: str, **variables: str) -> Done:
    """The script as sbatch runs it, with an srun that runs a task for each of ``nodes`` here, all at once."""
    tool(
        tools,
        "srun",
        'while [ "${1#--}" != "$1" ]; do shift; done\n'
        f'for node in {" ".join(nodes)}; do SLURMD_NODENAME=$node "$@" & tasks="${{tasks:-}} $!"; done\n'
        "worst=0\nfor task in $tasks; do wait $task || worst=$?; done\nexit $worst",
    )
    variables = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8", "STALLSCOPE_CHECK_OPTIONS": OPTIONS, **variables}
    return ran(["sh", "stallscope.sbatch"], tools, folder, **variables)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck here")
def test_the_scripts_are_clean_for_shellcheck() -> None:
    (container,) = yaml.safe_load(fleet.text("kubernetes"))["spec"]["template"]["spec"]["containers"]
    for script, excluded in ((fleet.text("slurm"), ""), (container["args"][0], "SC2086,SC2035,SC2016")):
        done = subprocess.run(
            ["shellcheck", "--shell=sh", f"--exclude={excluded}", "-"], input=script, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "")


def test_the_kubernetes_job_is_valid_with_volume_node_and_gpu() -> None:
    job = yaml.safe_load(fleet.text("kubernetes"))
    jsonschema.Draft202012Validator(JOB).validate(job)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    assert mount["mountPath"] == container["workingDir"]
    # How those that are done are found again.
    assert job["metadata"]["labels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_the_kubernetes_file_makes_a_job_for_each_node(
    stallscope_command: Command, tools: Path, tmp_path: Path
) -> None:
    printed(stallscope_command, "kubernetes", tmp_path / "stallscope.yaml")
    tool(
        tools,
        "kubectl",
        f'case $1 in get) printf "%s" "{" ".join(NODES)}" ;; create) cat > "job-$(ls | wc -l)" ;; *) echo "$@" ;; esac',
    )
    lines = (tmp_path / "stallscope.yaml").read_text(encoding="utf-8").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    script = "\n".join(line.removeprefix("#") for line in head if line.startswith("#   "))
    done = ran(["sh", "-euc", script], tools, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "jobs -l app.kubernetes.io/name=stallscope" in done.stdout
    jobs = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.glob("job-*"))]
    found = []
    for job in jobs:
        jsonschema.Draft202012Validator(JOB).validate(job)
        affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        found += [(one["key"], one["operator"], one["values"]) for one in term["matchFields"]]
    assert found == [("metadata.name", "In", [node]) for node in NODES]


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock here")
def test_every_kubernetes_job_checks_and_merges(tools: Path, tmp_path: Path) -> None:
    (container,) = yaml.safe_load(fleet.text("kubernetes"))["spec"]["template"]["spec"]["containers"]
    results = tmp_path / "results"
    results.mkdir()
    pods = []
    for node in NODES:
        told = {
            one["name"]: node if one.get("valueFrom") == {"fieldRef": {"fieldPath": "spec.nodeName"}} else one["value"]
            for one in container["env"]
        }
        told |= {"CHECK_OPTIONS": OPTIONS, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        pods.append(
            subprocess.Popen(
                [*container["command"], *container["args"]],
                cwd=results,
                env=environment(**told),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    assert [pod.wait(120) for pod in pods] == [0, 0]
    merged(results)


def test_the_containerfile_follows_the_rules() -> None:
    assert list(containerfile.problems(fleet.text("container"))) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM python:3.12-slim", "FROM python"),
        ("FROM python:3.12-slim", "FROM images.example.org/python:3.12"),
        ("USER 10001:10001", "USER root"),
        ("USER 10001:10001", "USER stallscope"),
        ('ENTRYPOINT ["stallscope"]', "ENTRYPOINT stallscope"),
        ("COPY stallscope", "ADD stallscope"),
        ("--no-cache-dir", ""),
        ("pip install", "curl https://example.org/setup && pip install"),
        ("WORKDIR /results", "WORKDIR results"),
    ],
)
def test_the_rules_find_what_is_wrong(old: str, new: str) -> None:
    assert old in fleet.text("container")
    assert list(containerfile.problems(fleet.text("container").replace(old, new)))


def test_the_containerfile_has_what_the_runtime_and_the_kubernetes_job_need() -> None:
    instructions = containerfile.parse(fleet.text("container"))
    variables = containerfile.environment(instructions)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    pod = yaml.safe_load(fleet.text("kubernetes"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    asked = {one["name"]: one.get("value") for one in container["env"]}
    assert asked["NVIDIA_DRIVER_CAPABILITIES"] == variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    # The same user, folder and group of the volume; what the Job calls is there.
    (user,) = (one.arguments for one in instructions if one.name == "USER")
    security = pod["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert (security["fsGroup"], security["runAsNonRoot"]) == (security["runAsGroup"], True)
    assert [one.arguments for one in instructions if one.name == "WORKDIR"] == [container["workingDir"]]
    checked = instructions[-3].arguments
    assert "stallscope --version" in checked
    assert "command -v flock" in checked
    assert "flock" in container["args"][0]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="there is no hadolint here")
def test_the_containerfile_is_clean_for_hadolint() -> None:
    done = subprocess.run(["hadolint", "-"], input=fleet.text("container"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def builder() -> str:
    """A program that builds images here; the test is skipped, with the reason, without one that works."""
    reasons = []
    base = containerfile.parse(fleet.text("container"))[0].arguments
    for name in ("docker", "podman", "buildah"):
        if shutil.which(name) is None:
            reasons.append(f"there is no {name}")
            continue
        have = subprocess.run([name, "images", "-q", base], capture_output=True, stdin=subprocess.DEVNULL)
        if name == "buildah" and os.environ.get("BUILDAH_ISOLATION") != "chroot" and not shutil.which("crun"):
            reasons.append("buildah has no container runtime")
            continue
        for arguments in (("info",), ("pull", base))[: 1 if have.returncode == 0 and have.stdout.strip() else 2]:
            done = subprocess.run([name, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                reasons.append(f"{name} {arguments[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
                break
        else:
            return name
    pytest.skip("; ".join(reasons))


def test_the_image_can_be_built_and_checks_without_root(builder: str, tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(fleet.text("container"), encoding="utf-8")
    source = tmp_path / "source"
    for name in ("app", "probes"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True)
    built = subprocess.run(
        [builder, "build", "-q", "-f", str(tmp_path / "Containerfile"), "-t", "stallscope-test", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    check = ["check", "--save", "check.json.gz", *OPTIONS.split()]
    start = [builder, "run", "--rm", "stallscope-test"]
    if builder == "buildah":
        # It runs commands, but not the image's entry point.
        made = subprocess.run(
            [builder, "from", "--pull-never", "stallscope-test"], capture_output=True, text=True, check=True
        )
        start = [builder, "run", made.stdout.strip(), "--", "stallscope"]
    done = subprocess.run([*start, *check], capture_output=True, text=True)
    if builder == "buildah":
        subprocess.run([builder, "rm", made.stdout.strip()], check=True)
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout


def test_every_ansible_play_and_task_has_a_name() -> None:
    plays = yaml.safe_load(fleet.text("ansible"))
    assert [play["hosts"] for play in plays] == ["gpus", "localhost"]
    for one in (*plays, *(task for play in plays for task in play["tasks"])):
        assert one["name"]


@pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="there is no ansible-playbook here")
def test_the_ansible_playbook_checks_each_host_fetches_and_merges(
    stallscope_command: Command, tools: Path, tmp_path: Path
) -> None:
    printed(stallscope_command, "ansible", tmp_path / "stallscope.yml")
    inventory = ["[gpus]"]
    for node in NODES:
        (tmp_path / f"textfiles-{node}").mkdir()
        inventory.append(
            f"{node} ansible_connection=local ansible_python_interpreter={sys.executable} "
            f"textfiles={tmp_path}/textfiles-{node}"
        )
    (tmp_path / "inventory").write_text("\n".join(inventory), encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    done = ran(
        ["ansible-playbook", "-i", "../inventory", "../stallscope.yml", "-e", f"check_options='{OPTIONS}'"],
        tools,
        tmp_path / "elsewhere",
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_wording.SYMBOLS_TITLE in done.stdout
    merged(tmp_path / "stallscope-results")
    for node in NODES:
        figures = (tmp_path / f"textfiles-{node}" / "stallscope.prom").read_text(encoding="utf-8")
        assert "stallscope_cell_worst_ratio{" in figures
