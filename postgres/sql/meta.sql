select value from cairnq_meta where key = :key::text
