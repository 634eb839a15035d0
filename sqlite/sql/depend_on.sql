insert into holdfast_dependencies (child_id, parent_id, finished, met, position)
values (:id, :parent_id, :finished, :met, :position)
