update holdfast_limits set tat_us = :tat_us where kind = :kind and name = :key
