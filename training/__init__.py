"""Makes the demo drafters and the MTP head; the app never imports it."""
