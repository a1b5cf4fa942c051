"""Parse the header of a Kafka request, which is the same for every API, without its body.

Both sides send frames: four bytes of length, then that many bytes. A request begins with API key,
API version, correlation id and client id (header versions 1 and 2 differ only behind the client
id); a response begins with the correlation id of its request. A proxy needs no more to select "the
next EndTxn of this client".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

API_NAMES = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "DescribeQuorum",
    "AlterPartition",
    "UpdateFeatures",
    "Envelope",
    "FetchSnapshot",
    "DescribeCluster",
    "DescribeProducers",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "UnregisterBroker",
    "DescribeTransactions",
    "ListTransactions",
    "AllocateProducerIds",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ControllerRegistration",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "AssignReplicasToDirs",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
)
"""By API key, as in Kafka's protocol guide."""
HEADER = struct.Struct(">hhih")
LENGTH = struct.Struct(">i")


@dataclass(frozen=True)
class Request:
    """One request: its header, and the whole frame without the length."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    frame: bytes


def parse_request(frame: bytes) -> Request:
    """The header of a request's frame; an API without a name here gets its number."""
    key, version, correlation_id, length = HEADER.unpack_from(frame)
    client_id = frame[HEADER.size : HEADER.size + max(0, length)].decode(errors="replace")
    return Request(
        API_NAMES[key] if 0 <= key < len(API_NAMES) else str(key),
        version,
        correlation_id,
        client_id,
        frame,
    )


def parse_correlation_id(frame: bytes) -> int:
    """The correlation id of a response's frame."""
    return int(LENGTH.unpack_from(frame)[0])
