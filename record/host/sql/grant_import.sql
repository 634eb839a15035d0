insert into grants (id, rk, client, representative, scope, not_after, revoked_at, created_at)
values (:id, :rk, :client, :representative, :scope, :not_after, :revoked, :created)
