-- The public stream of orders, made of the private changes of a table.
--
--     private.shop.public.orders  ->  shop.orders      what other teams may read: examples/public_orders/contract.yaml
--
-- Names and units of the public topic stay, whatever happens to the columns of the table.

CREATE SOURCE changes (op STRING, after STRUCT<id: INT, customer: STRING, cents: BIGINT, state: STRING>)
FROM TOPIC 'private.shop.public.orders';

CREATE STREAM public_orders TO TOPIC 'shop.orders' KEY (order_id) AS
SELECT after.id AS order_id, after.cents / 100 AS euros, after.state AS state
FROM changes WHERE op IN ('c', 'u', 'r');
