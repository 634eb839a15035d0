update holdfast_limits set tat_us = :tat_us::bigint where kind = :kind::text and name = :key::text
