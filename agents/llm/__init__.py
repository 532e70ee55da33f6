"""Language models behind one port: by transcript, by mailbox folder, or by network."""
