"""SimProto, byte for byte: dialogs of requests and responses, with calls and topics on top."""
