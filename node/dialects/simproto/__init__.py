"""SimProto, byte for byte: dialogs of requests and responses, and on them calls and topics."""
