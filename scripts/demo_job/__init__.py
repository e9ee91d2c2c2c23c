"""The demo: real flights through a broker and Spark, and a comparison with what must come out.

flights    the flights, as contents to publish and as the figures that must come out
publish    the flights into a resource
query      the Spark application: figures per day, carrier and origin; knows nothing of the demo
processes  the Spark application as a process of its own, to be watched and killed
progress   how far a query is, from its checkpoint
chaos      what is killed when, and what became of it
report     the comparison as a verdict, a table and a picture
"""
