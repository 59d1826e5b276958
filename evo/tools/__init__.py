"""What a model may call on a draft kernel before it answers: one file a tool."""
