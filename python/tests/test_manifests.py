"""Validation of KubeRay's manifests; an unknown key is an error.

The schemas of Kubernetes check pods. The table below checks KubeRay's own resources (`ray.io/v1`):
it has those of their keys that the manifests may use.
"""

import ast
import copy
import re
import shlex
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

import leeward as lw

FOLDER = Path(__file__).parents[1] / "kuberay"
REQUIREMENTS = FOLDER.parent / "requirements.txt"
MANIFESTS = {"cluster.yaml": "RayCluster", "job.yaml": "RayJob"}
# A version whose schemas the validator's package contains.
KUBERNETES = "1.30"

COUNT = {"type": "integer", "minimum": 0}
POD = {"type": "object"}  # the schema of Kubernetes checks it
PARAMS = {"type": "object", "additionalProperties": {"type": "string"}}


def closed(required: list[str], **properties: object) -> dict[str, object]:
    """Schema of an object with these keys and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


WORKERS = closed(["groupName", "minReplicas", "maxReplicas", "template"], groupName={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
                 replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT, rayStartParams=PARAMS, template=POD)
CLUSTER = closed(["headGroupSpec"], rayVersion={"type": "string"}, headGroupSpec=closed(["template"], rayStartParams=PARAMS, template=POD),
                 workerGroupSpecs={"type": "array", "items": WORKERS, "minItems": 1})
JOB = closed(["entrypoint", "rayClusterSpec"], entrypoint={"type": "string"}, shutdownAfterJobFinishes={"type": "boolean"}, backoffLimit=COUNT,
             rayClusterSpec=CLUSTER)
METADATA = closed(["name"], name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
SPECS = {"RayCluster": CLUSTER, "RayJob": JOB}


def read(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text())


def cluster_of(manifest: dict) -> dict:
    return manifest["spec"].get("rayClusterSpec", manifest["spec"])


def validate(manifest: dict) -> None:
    """Raises if a cluster would reject the manifest, or ignore one of its keys."""
    kind = manifest.get("kind")
    whole = closed(["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "ray.io/v1"}, kind={"enum": list(SPECS)}, metadata=METADATA,
                   spec=SPECS.get(kind, {}))
    jsonschema.validate(manifest, whole)
    cluster = cluster_of(manifest)
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        mounted = {mount["name"] for one in pod["spec"]["containers"] for mount in one.get("volumeMounts", [])}
        if not mounted <= volumes:
            raise ValueError(f"no volume {mounted - volumes}")


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_accepted(name):
    manifest = read(name)
    assert manifest["kind"] == MANIFESTS[name]
    validate(manifest)
    for workers in cluster_of(manifest)["workerGroupSpecs"]:
        assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda manifest: cluster_of(manifest).update(rayVersoin="2"),
        lambda manifest: cluster_of(manifest)["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        lambda manifest: cluster_of(manifest)["workerGroupSpecs"][0].pop("template"),
        lambda manifest: cluster_of(manifest)["workerGroupSpecs"][0]["template"]["spec"]["containers"][0].update(imgae="x"),
        lambda manifest: cluster_of(manifest)["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["limits"].update(cpu=[4]),
        lambda manifest: cluster_of(manifest)["headGroupSpec"]["template"]["spec"].pop("volumes"),
        lambda manifest: manifest["metadata"].update(name="Not A Name"),
        lambda manifest: manifest.update(apiVersion="ray.io/v2"),
    ],
)
def test_what_a_cluster_would_refuse_is_found(name, spoil):
    manifest = copy.deepcopy(read(name))
    spoil(manifest)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError, ValueError)):
        validate(manifest)


def test_image_manifests_and_lock_file_name_one_ray():
    pinned = re.search(r"^ray==(.+)$", REQUIREMENTS.read_text(), re.MULTILINE).group(1)
    image = re.search(r"^FROM rayproject/ray:(.+)-py3(\d+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert image.group(1) == pinned and int(image.group(2)) >= 11
    assert {cluster_of(read(name))["rayVersion"] for name in MANIFESTS} == {pinned}
    images = {
        container["image"]
        for name in MANIFESTS
        for group in [cluster_of(read(name))["headGroupSpec"], *cluster_of(read(name))["workerGroupSpecs"]]
        for container in group["template"]["spec"]["containers"]
    }
    assert len(images) == 1, "Ray refuses workers that differ from the head"


def test_the_jobs_program_is_a_sweep_that_is_accepted(short):
    python, flag, program = shlex.split(read("job.yaml")["spec"]["entrypoint"])
    assert (python, flag) == ("python", "-c")
    call = next(node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "sweep")
    options = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert options["on"] == "ray" and options["out"].startswith("/sweeps/")
    name, grid = ast.literal_eval(call.args[0].args[0]), ast.literal_eval(call.args[1])
    # The job's scenario and grid, with short runs.
    swept = lw.sweep(lw.scenario(name).quick().set({"run.duration": "3ms", "run.warmup": "1ms"}), grid | {"clients": [10], "demand": [0.5]}, on="threads")
    assert set(swept.table().column("label")) == set(grid["controller"])
