"""Parses the body of an OTLP export from standard input by OpenTelemetry's own definitions.

Prints a line per metric: name, kind, unit, number of points, total. Fails for an unknown field.
Needs `scripts/setup otlp`; the test is cli/tests/suite/otlp.rs.
"""
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

request = json_format.Parse(sys.stdin.buffer.read(), ExportMetricsServiceRequest(), ignore_unknown_fields=False)
for resource in request.resource_metrics:
    for attribute in resource.resource.attributes:
        print("resource", attribute.key, attribute.value.string_value)
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            if kind != "gauge":
                assert data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE, metric.name
            for point in data.data_points:
                assert point.time_unix_nano > 0, metric.name
                assert kind == "gauge" or 0 < point.start_time_unix_nano <= point.time_unix_nano, metric.name
                if kind == "histogram":
                    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric.name
                    assert sum(point.bucket_counts) == point.count, metric.name
            value = sum(point.count if kind == "histogram" else point.as_int + point.as_double for point in data.data_points)
            print("metric", metric.name, kind, metric.unit, len(data.data_points), value)
