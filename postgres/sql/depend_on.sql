insert into holdfast_dependencies (child_id, parent_id, finished, met, position)
values (:id::text, :parent_id::text, :finished::boolean, :met::boolean, :position::integer)
