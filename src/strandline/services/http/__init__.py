"""The guard that every HTTP service stands behind. A route that declares no right is refused.

    door = HttpDoor(DoorSettings.of(properties), [Route("/topics/{topic}", needs(READ, TOPIC, path="topic")(show))])
    door.run()

`door_settings` reads the settings, `door` listens and reloads certificates, `connection` bounds slow clients. `guard`
checks Host, Origin and sizes. `logins` proves credentials by a login to the cluster, `cluster_rights` decides by the
cluster's ACLs, `caller` is what a route learns of both, and `declared_rights` says what a route needs.
"""
