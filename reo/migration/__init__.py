"""What moves with a topic: consumer groups' offsets, ACLs, configurations; and the cutover."""
