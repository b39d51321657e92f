"""Generated scenes in the layouts of ADE20K, COCO and ImageNet."""
