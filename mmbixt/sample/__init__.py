"""Generated scenes in the layouts of ADE20K and COCO."""
