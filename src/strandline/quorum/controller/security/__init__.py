"""Commands about users, access rules and quotas."""
