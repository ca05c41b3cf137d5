-- A pipeline in SQL: large orders as a stream, and what each country orders as a view.
--
--     orders  ->  large_orders      a stream
--     orders  ->  country_sales     a view: strandline view query "SELECT * FROM country_sales"

CREATE SOURCE orders (order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP)
FROM TOPIC 'orders';

CREATE TEMPORARY VIEW priced AS
SELECT order_id, country, article, cents / 100 AS euros FROM orders;

CREATE STREAM large_orders AS
SELECT order_id, article, euros FROM priced WHERE euros > 100;

CREATE VIEW country_sales KEY (country) AS
SELECT country, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY country;
