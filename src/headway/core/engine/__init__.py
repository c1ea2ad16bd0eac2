"""What happens next: inputs in, events and effects out."""
