"""The demo: real flights through a broker and Spark, and a comparison with the expected figures.

flights    the flights, as contents to publish and as the expected figures
publish    the flights into a resource
query      the Spark application: figures per day, carrier and origin, independent of the demo
processes  the Spark application as a separate process, to be observed and killed
progress   the progress of a query, from its checkpoint
chaos      the kills and their outcomes
report     the comparison as a verdict, a table and a picture
"""
