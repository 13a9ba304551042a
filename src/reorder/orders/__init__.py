"""What an order is, and how one is learned."""
