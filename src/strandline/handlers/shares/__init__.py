"""What the handlers of ShareFetch and ShareAcknowledge share: sessions, acknowledgements, and fetches that wait."""
