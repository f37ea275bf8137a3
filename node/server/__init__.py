"""What makes a node a server: links to other servers, their cards, accounts, topics followed."""
