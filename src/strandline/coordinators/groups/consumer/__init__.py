"""The consumer group protocol (KIP-848), with members that still speak the classic one."""
