"""Validates Kubernetes manifests by the schemas of several versions; an unknown field is an error.

Needs `scripts/setup recipes`.
"""
import sys

import kubernetes_validate
import yaml

for path in sys.argv[1:]:
    with open(path) as file:
        for document in yaml.safe_load_all(file):
            # Kubernetes has `preStop.sleep` since 1.29, and on by default since 1.30.
            for version in ("1.30", "1.33"):
                kubernetes_validate.validate(document, version, strict=True)
            print(document["kind"])
