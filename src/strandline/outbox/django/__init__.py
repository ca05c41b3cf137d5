"""A Django app with migrations for the tables `outbox` and `inbox`.

    INSTALLED_APPS = [..., "strandline.outbox.django"]

Then `manage.py migrate` creates them in each database that migrations run on.
"""
