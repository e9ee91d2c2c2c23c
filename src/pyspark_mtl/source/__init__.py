"""The source: plans offsets and tasks on the driver, and reads record batches on the executors.

Read `source.py` first: the classes that Spark calls. `progress.py` plans the next batch on the driver (offsets.py,
admission.py, planning.py, resource_watch.py), `driver.py` talks to the broker for it, and `reading.py` reads one task
on an executor.
"""
